/**
 * Format of a sealed text (secrets/cipher.ts), and the row that shows which key a database needs.
 */

export const SEALED = /^v1\.(?<key>[0-9a-f]{16})\.(?<body>[A-Za-z0-9_-]+)$/;

/** Returns the id of the key that sealed this text, or null for text of an unknown format. */
export const sealedBy = (sealed: string): string | null =>
  SEALED.exec(sealed)?.groups?.['key'] ?? null;

/**
 * Key in `meta` of a text that the current key of SECRETS_KEY sealed. The text reveals a wrong key
 * even before the first secret exists.
 */
export const SECRETS_CHECK = 'secrets_key_check';
