/** The option `--limit`. */
const DEFAULT = 50;

export const limitOf = (given: unknown): number => (given as number | undefined) ?? DEFAULT;
