/**
 * Parses form bodies. Anybody can send a form without a session, so the cost of parsing is bounded.
 */

/** The gateway's largest form has 3 parameters; RFC 8628 and client extensions add a few. */
export const MAX_PARAMETERS = 20;

/**
 * Returns the parameters by name, with a list for repeated ones, or null if there are more than
 * MAX_PARAMETERS. Parses in one pass.
 */
export function parseForm(body: string): Record<string, string | string[]> | null {
  let separators = 0;
  for (let at = body.indexOf('&'); at !== -1; at = body.indexOf('&', at + 1))
    if (++separators >= MAX_PARAMETERS) return null;
  const values = Object.create(null) as Record<string, string | string[]>;
  for (const [name, value] of new URLSearchParams(body)) {
    const before = values[name];
    if (before === undefined) values[name] = value;
    else values[name] = [...[before].flat(), value];
  }
  return values;
}
