import { randomBytes } from 'node:crypto';

export type NewId = () => string;

/** 96 random bits: opaque, URL-safe, never starting with a dash (a command line would read it as an option). */
export const randomId: NewId = () => randomBytes(12).toString('hex');
