// Pages that are told again and again what they show, for as long as somebody looks.

import { get, post } from "./api.js";

/** A page that draws what an address answers; its `draw` may say in how many seconds it is asked next. */
export class PolledPage {
  constructor(address, seconds) {
    this.address = address;
    this.seconds = seconds;
  }

  /** What is asked of the address beside. */
  asked() {
    return {};
  }

  show() {
    this.hide();
    this.end = poll(() => get(this.address, this.asked()), (told, error) => this.draw(told, error), this.seconds);
  }

  hide() {
    this.end?.();
  }

  /** Have something begun or stopped, and see at once what comes of it. */
  async act(address) {
    await post(address);
    this.show();
  }
}

/** Ask again and again while somebody looks; gives a function that ends it. */
function poll(ask, show, seconds) {
  let ended = false;
  const turn = async () => {
    if (ended) return;
    let wait = seconds;
    try {
      if (!document.hidden) wait = show(await ask()) ?? seconds;
    } catch (error) {
      if (!ended) show(null, error);
      wait = Math.max(seconds, 2);
    }
    if (!ended && wait > 0) setTimeout(turn, wait * 1000);
  };
  turn();
  return () => { ended = true; };
}
