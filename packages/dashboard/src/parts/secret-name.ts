/** Guesses from a variable's name or value whether it is a secret. */

/** Matches words that mark the name of a secret. Underscores separate the words of a name. */
const WORDS = new RegExp(
  String.raw`(?:^|_)(?:SECRET|SECRETS|TOKEN|PASSWORD|PASSWD|PASS|PWD|PASSPHRASE|CREDENTIALS?` +
    String.raw`|KEY|APIKEY|DSN|PRIVATE|PAT|SALT|PEPPER|JWT|OAUTH|COOKIE)(?:_|$)`,
);
/** Matches names of public keys, which are not secret. */
const PUBLIC = /(?:^|_)(?:PUBLIC|PUBLISHABLE)(?:_|$)/;
/**
 * Matches secret values: an address with a password, a private key, a token of a well-known
 * service, or a signed token.
 */
const VALUES = [
  /^[a-z][a-z0-9+.-]*:\/\/[^/\s:@]*:[^/\s@]+@/i,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----/,
  /^(?:gh[pousr]_|github_pat_|glpat-|sk_live_|sk-|xox[abprs]-|AKIA|hf_|npm_)\w/,
  /^eyJ[\w-]+\.[\w-]+\.[\w-]*$/,
];

/** Splits a name into words: `dbPassword` and `db-password` become `DB_PASSWORD`. */
const wordsOf = (name: string): string =>
  name
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replaceAll(/[^A-Za-z0-9]+/g, '_')
    .toUpperCase();

export function looksSecret(name: string, value: string): boolean {
  const words = wordsOf(name);
  return (
    (WORDS.test(words) && !PUBLIC.test(words)) ||
    VALUES.some((pattern) => pattern.test(value.trim()))
  );
}
