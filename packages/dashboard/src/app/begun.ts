/**
 * Logins by the gateway that a page of this browser began. The gateway comes back to an address
 * that signs in. Anybody can make a link to such an address, and an application can plant its
 * owner's session for the whole domain, so the address names a random value that only this browser
 * knows.
 */
const BEGUN = 'berth.sign-in';
const LAST = 'berth.last-account';
/** Each sign-in page that is open keeps one. */
const MOST = 16;

/** A browser can refuse to store anything. Then every login asks who continues. */
const stored = (key: string): string | null => {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
};
const store = (key: string, text: string): void => {
  try {
    localStorage.setItem(key, text);
  } catch {
    // See `stored`.
  }
};
const begun = (): string[] => (stored(BEGUN) ?? '').split(' ').filter((value) => value !== '');

/**
 * Returns a new value for the address to which the gateway comes back. localStorage, because the
 * login can open in another tab.
 */
export function beginLogin(): string {
  const value = [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
  store(BEGUN, [...begun(), value].slice(-MOST).join(' '));
  return value;
}

/** Returns whether this browser began the login with this value. Each value counts once. */
export function endLogin(value: string): boolean {
  const values = begun();
  if (!values.includes(value)) return false;
  store(BEGUN, values.filter((one) => one !== value).join(' '));
  return true;
}

/** Whether another account used this dashboard last. */
export const isOtherAccount = (email: string): boolean => (stored(LAST) ?? email) !== email;
export const usedAccount = (email: string): void => store(LAST, email);

const REFUSED = 'berth.refused';
/**
 * Whether the session in the cookie is one that the person did not choose, and could not be ended
 * yet. A page that is loaded again must not use it.
 */
export const isRefused = (): boolean => stored(REFUSED) === 'yes';
export const setRefused = (refused: boolean): void => store(REFUSED, refused ? 'yes' : 'no');
