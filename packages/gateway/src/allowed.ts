/**
 * Returns the check against ALLOWED_EMAILS (docs/interfaces.md "Settings"). `allowed` lists
 * addresses and `@domains` in lower case; undefined allows everybody.
 */
export const allowedBy =
  (allowed: readonly string[] | undefined) =>
  (email: string): boolean => {
    if (allowed === undefined) return true;
    const address = email.toLowerCase();
    return allowed.includes(address) || allowed.includes(address.slice(address.lastIndexOf('@')));
  };
