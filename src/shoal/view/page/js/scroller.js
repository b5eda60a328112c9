// Where things are in a list too long for a browser: an element can be some 33 million pixels high, and a million
// samples on a phone are 90 million.
//
// `top` is the place in the true list, `scrollTop` that of the scroll bar. Small movements move both alike, so that
// scrolling is the browser's own; a jump of the bar is a jump to the same share of the list. What lies at y of the list
// is drawn at y + shift of the canvas.

const TALLEST = 8_000_000;
const JUMP = 4;

export class Scroller {
  /** @param {HTMLElement} element what scrolls  @param {HTMLElement} canvas what is in it  @param {() => void} moved */
  constructor(element, canvas, moved) {
    this.element = element;
    this.canvas = canvas;
    this.moved = moved;
    this.height = 0;
    this.top = 0;
    this.shift = 0;
    this.last = 0;
    this.timer = 0;
    element.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  get view() {
    return this.element.clientHeight;
  }

  /** How far one can go down in the list. */
  get end() {
    return Math.max(this.height - this.view, 0);
  }

  /** How far the bar can go down. */
  get barEnd() {
    return Math.max(Math.min(this.height, TALLEST) - this.view, 0);
  }

  /** Set the height of the list; the place stays. */
  resize(height) {
    this.height = height;
    const shown = `${Math.min(height, TALLEST)}px`;
    if (this.canvas.style.height !== shown) this.canvas.style.height = shown;
    this.go(Math.min(this.top, this.end));
  }

  /** Go to a place in the list. */
  go(top) {
    this.top = Math.max(0, Math.min(top, this.end));
    this.settle();
  }

  /** Put the bar where it belongs for the place in the list. */
  settle() {
    const bar = this.height <= TALLEST ? this.top : (this.end ? this.top / this.end : 0) * this.barEnd;
    this.last = Math.round(bar);
    this.shift = this.last - this.top;
    if (Math.abs(this.element.scrollTop - this.last) >= 1) this.element.scrollTop = this.last;
    this.last = this.element.scrollTop;
    this.shift = this.last - this.top;
  }

  scrolled() {
    const bar = this.element.scrollTop;
    const moved = bar - this.last;
    if (moved === 0) return;
    this.last = bar;
    if (this.height <= TALLEST) {
      this.top = bar;
      this.shift = 0;
    } else if (Math.abs(moved) > JUMP * this.view || bar <= 0 || bar >= this.barEnd) {
      this.top = this.barEnd ? (bar / this.barEnd) * this.end : 0;
      this.shift = bar - this.top;
    } else {
      this.top = Math.max(0, Math.min(this.top + moved, this.end));
      this.shift = bar - this.top;
    }
    clearTimeout(this.timer);
    if (this.height > TALLEST) this.timer = setTimeout(() => { this.settle(); this.moved(); }, 160);
    this.moved();
  }
}
