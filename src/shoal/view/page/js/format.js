// Numbers as people read them.

const COUNT = new Intl.NumberFormat("en-US");

/** 1,234,567 */
export function count(number) {
  return COUNT.format(number);
}

/** "1 sample", "2 samples" */
export function many(number, what) {
  const plural = /(s|sh|ch)$/.test(what) ? `${what}es` : `${what}s`;
  return `${count(number)} ${number === 1 ? what : plural}`;
}

/** 12.3 kB */
export function bytes(size) {
  if (size === null || size === undefined) return "";
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (size < 1000) return `${size >= 100 || Number.isInteger(size) ? Math.round(size) : size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return `${Math.round(size)} PB`;
}

/** 0.001234, 12.35, 1.2e+9: at most four digits that tell something. */
export function short(number) {
  if (typeof number !== "number") return String(number);
  if (number === 0 || Number.isInteger(number) && Math.abs(number) < 1e7) return count(number);
  const size = Math.abs(number);
  return size >= 1e6 || size < 1e-3 ? number.toExponential(2) : String(Number(number.toPrecision(4)));
}

/** 1.2k, 3.4M: for axes and rates. */
export function round(number) {
  const size = Math.abs(number);
  if (size >= 1e9) return `${trim(number / 1e9)}G`;
  if (size >= 1e6) return `${trim(number / 1e6)}M`;
  if (size >= 1e3) return `${trim(number / 1e3)}k`;
  return size !== 0 && size < 0.01 ? number.toExponential(0) : trim(number);
}

function trim(number) {
  return String(Number(number.toPrecision(3)));
}

/** 1:05, or 0.42 s */
export function seconds(time) {
  if (time < 10) return `${time.toFixed(2)} s`;
  const minutes = Math.floor(time / 60);
  return `${minutes}:${String(Math.floor(time % 60)).padStart(2, "0")}`;
}

/** 12 % */
export function percent(share) {
  return `${Math.round(share * 100)} %`;
}
