// Polls once a second while the page is visible, and shows whether that succeeds.

import { byId, setAttribute, setText } from "./dom.js";

const PAUSE = 1000;

/** Calls `look` repeatedly; returns a function that triggers the next call at once. */
export function keepLooking(look) {
  let wake = () => {};

  const pause = () =>
    new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, PAUSE);
    });

  async function run() {
    for (;;) {
      await untilSeen();
      try {
        await look();
      } catch (error) {
        showConnection("lost", `Not up to date: ${error.message}`);
      }
      await pause();
    }
  }

  run();
  return () => wake();
}

function untilSeen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

function showConnection(state, text) {
  setAttribute(byId("connection"), "data-state", state);
  setText(byId("connection"), text);
}

/** Shows which replica answers, and whether its data is up to date; `problem` says why not. */
export function showReplica(replica, problem = "") {
  setText(byId("replica"), `This is replica ${replica.host}, which ${replica.leading ? "leads" : "stands by"}.`);
  if (problem) showConnection("stale", `Not up to date: ${problem}`);
  else if (replica.ready) showConnection("live", "Live");
  else if (replica.hasListed) showConnection("stale", "The operator does not reach the API server; figures of zones may be old");
  else showConnection("loading", "The operator has not listed the zones yet …");
}
