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

// What is of a sample lies under `base`: "" for one as it was read, "/results" for what the pipeline made of it.

/** The address of a small picture of a field. */
export function thumbnail({ base, number }, field, edge) {
  return `${base}/thumbnail/${number}?${new URLSearchParams({ field, edge, visit: VISIT })}`;
}

/** The address of a picture of a field: as it is ("picture"), as a "mask", as a "heat" map. */
export function picture({ base, number }, field, as = "picture") {
  return `${base}/picture/${number}?${new URLSearchParams({ field, as, visit: VISIT })}`;
}

/** The address of sound or a film. */
export function media({ base, number }, field) {
  return `${base}/media/${number}?${new URLSearchParams({ field, visit: VISIT })}`;
}

/** The address of the bytes of a field. */
export function raw({ base, number }, field) {
  return `${base}/raw/${number}?${new URLSearchParams({ field })}`;
}
