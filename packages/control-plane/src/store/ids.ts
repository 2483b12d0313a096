import { randomBytes } from 'node:crypto';

export type NewId = () => string;

/**
 * Returns 96 random bits in hex: opaque, URL-safe, and never with a leading dash, which a command
 * line would read as an option.
 */
export const randomId: NewId = () => randomBytes(12).toString('hex');
