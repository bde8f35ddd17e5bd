"""The operator among liars and in a bad network, for as long as one likes: nobody else may notice."""
