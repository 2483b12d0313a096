import { randomBytes } from 'node:crypto';

/** 96 random bits: opaque, URL-safe, never starting with a dash (a command line would read it as an option). */
export const newId = (): string => randomBytes(12).toString('hex');
