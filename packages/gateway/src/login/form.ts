/** Reads the body of a form. Anybody can send one without a session, so its cost has a constant bound. */

/** The largest of our forms has 3; RFC 8628 and extensions of clients add a few. */
export const MAX_PARAMETERS = 20;

/** Returns each parameter by its name, a list where it stands more than once; null: more than MAX_PARAMETERS. Makes one pass over the body. */
export function parseForm(body: string): Record<string, string | string[]> | null {
  let separators = 0;
  for (let at = body.indexOf('&'); at !== -1; at = body.indexOf('&', at + 1)) if (++separators >= MAX_PARAMETERS) return null;
  const values = Object.create(null) as Record<string, string | string[]>;
  for (const [name, value] of new URLSearchParams(body)) {
    const before = values[name];
    if (before === undefined) values[name] = value;
    else values[name] = [...[before].flat(), value];
  }
  return values;
}
