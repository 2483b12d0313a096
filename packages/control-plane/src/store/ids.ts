import { randomBytes } from 'node:crypto';

export type NewId = () => string;

/**
 * Returns 96 random bits in hex: opaque and URL-safe. It never begins with a dash, which a command
 * line would read as an option.
 */
export const randomId: NewId = () => randomBytes(12).toString('hex');
