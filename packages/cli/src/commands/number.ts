/** Parsers for options that take a number. They refuse a text that is none. */

/** A count that can be 0. */
export function wholeNumber(text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 0 || text.trim() === '')
    throw new Error('must be a whole number of at least 0');
  return count;
}

/** A limit, a version or the number of an instance. */
export function positive(text: string): number {
  const number = wholeNumber(text);
  if (number === 0) throw new Error('must be a whole number of at least 1');
  return number;
}

/** A share of CPUs. */
export function cpuCount(text: string): number {
  const cpus = Number(text);
  if (!Number.isFinite(cpus) || cpus <= 0) throw new Error('must be a number such as 0.5 or 2');
  return cpus;
}
