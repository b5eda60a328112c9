// What is asked of the server, all of it under this page's own address.

const VISIT = Date.now().toString(36);

/** Ask for JSON; an answer that is an error becomes one here. */
export async function get(path, asked = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== "" && value !== undefined));
  const text = query.toString();
  return answer(await fetch(text ? `${path}?${text}` : path, { signal }));
}

/** Ask for something to be done. */
export async function post(path) {
  return answer(await fetch(path, { method: "POST" }));
}

async function answer(response) {
  const told = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Error(told.error ?? `the server answered ${response.status}`);
  return told;
}

/** The address of a small picture of a field. */
export function thumbnail(number, field, edge) {
  return `/thumbnail/${number}?${new URLSearchParams({ field, edge, visit: VISIT })}`;
}

/** The address of a picture of a field: as it is ("picture"), as a "mask", as a "heat" map. */
export function picture(number, field, as = "picture") {
  return `/picture/${number}?${new URLSearchParams({ field, as, visit: VISIT })}`;
}

/** The address of sound or a film. */
export function media(number, field) {
  return `/media/${number}?${new URLSearchParams({ field, visit: VISIT })}`;
}

/** The address of the bytes of a field. */
export function raw(number, field) {
  return `/raw/${number}?${new URLSearchParams({ field })}`;
}
