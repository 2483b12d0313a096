/**
 * Checks an e-mail address against ALLOWED_EMAILS: addresses and `@domains` in lower case, or
 * undefined to allow everybody (docs/interfaces.md "Settings").
 */
export const allowedBy =
  (allowed: readonly string[] | undefined) =>
  (email: string): boolean => {
    if (allowed === undefined) return true;
    const address = email.toLowerCase();
    return allowed.includes(address) || allowed.includes(address.slice(address.lastIndexOf('@')));
  };
