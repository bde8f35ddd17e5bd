"""The operator among liars and in a bad network, for any time: honest pools must not be affected."""
