/**
 * Gateway logins that a page of this browser began. After a login, the gateway redirects to an
 * address that signs the browser in. Anybody can make a link to such an address, and an application
 * can set its owner's session cookie for the whole domain. So the address contains a random value
 * that only this browser knows.
 */
const BEGUN = 'berth.sign-in';
const LAST = 'berth.last-account';
/** Maximum number of values; each open sign-in page stores one. */
const MOST = 16;

/**
 * Returns a stored value, or null. If the browser stores nothing, every login asks who continues.
 */
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
    // Ignore the error: the browser refuses to store the value (see `stored`).
  }
};
const begun = (): string[] => (stored(BEGUN) ?? '').split(' ').filter((value) => value !== '');

/**
 * Returns a new value for the redirect address of the gateway. Uses localStorage, because the login
 * can open in another tab.
 */
export function beginLogin(): string {
  const value = [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
  store(BEGUN, [...begun(), value].slice(-MOST).join(' '));
  return value;
}

/** Returns whether this browser began the login with this value. Each value is valid once. */
export function endLogin(value: string): boolean {
  const values = begun();
  if (!values.includes(value)) return false;
  store(BEGUN, values.filter((one) => one !== value).join(' '));
  return true;
}

/** Returns whether another account used this dashboard last. */
export const isOtherAccount = (email: string): boolean => (stored(LAST) ?? email) !== email;
export const usedAccount = (email: string): void => store(LAST, email);

const REFUSED = 'berth.refused';
/**
 * Returns whether the cookie has a session that the person did not choose and that could not be
 * ended yet. After a reload, the page must not use that session.
 */
export const isRefused = (): boolean => stored(REFUSED) === 'yes';
export const setRefused = (refused: boolean): void => store(REFUSED, refused ? 'yes' : 'no');
