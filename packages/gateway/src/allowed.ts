/** Who may sign in at all (INTERFACES.md, ALLOWED_EMAILS): addresses and `@domains`, lower case; undefined: everybody. */
export const allowedBy =
  (allowed: readonly string[] | undefined) =>
  (email: string): boolean => {
    if (allowed === undefined) return true;
    const address = email.toLowerCase();
    return allowed.includes(address) || allowed.includes(address.slice(address.lastIndexOf('@')));
  };
