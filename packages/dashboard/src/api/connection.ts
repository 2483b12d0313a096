/** The connection state, which all parts of the page read: does the control plane answer? */
import { useSyncExternalStore } from 'react';

/**
 * `away`: no answer since `since`. `seenAt`: time of the last answer. `signedOut`: the session has
 * ended. `outdated`: the control plane was upgraded, and this tab still runs the older page.
 */
export type Connection = {
  state: 'ok' | 'away';
  since: number;
  seenAt: number;
  signedOut: boolean;
  outdated: boolean;
};

let current: Connection = {
  state: 'ok',
  since: Date.now(),
  seenAt: Date.now(),
  signedOut: false,
  outdated: false,
};
const listeners = new Set<() => void>();
const onReturn = new Set<() => void>();

function set(next: Partial<Connection>): void {
  current = { ...current, ...next };
  for (const listener of listeners) listener();
}

export function reportAnswer(): void {
  const wasAway = current.state === 'away';
  if (!wasAway) {
    // Store the time of each answer without a render.
    current.seenAt = Date.now();
    return;
  }
  set({ state: 'ok', since: Date.now(), seenAt: Date.now() });
  for (const listener of onReturn) listener();
}

export function reportProblem(problem: 'away' | 'signed_out' | 'outdated'): void {
  if (problem === 'signed_out') {
    if (!current.signedOut) set({ signedOut: true });
  } else if (problem === 'outdated') {
    if (!current.outdated) set({ outdated: true });
  } else if (current.state !== 'away') set({ state: 'away', since: Date.now() });
}

/**
 * All tabs of this browser share one cookie, so a sign-in in one tab signs in all tabs, perhaps as
 * another person.
 */
const tabs = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('berth-sign-in');
tabs?.addEventListener('message', () => {
  for (const listener of onReturn) listener();
});

export const reportSignIn = (): void => tabs?.postMessage('signed in');

/**
 * Reports that the control plane named the person of the session. Only this call ends the
 * signed-out state, so that nobody uses another person's page.
 */
export function reportPerson(): void {
  if (current.signedOut) set({ signedOut: false });
}

/**
 * Calls `listener` when the control plane answers again, and after a sign-in in another tab.
 * Returns the function that removes the listener.
 */
export function whenBack(listener: () => void): () => void {
  onReturn.add(listener);
  return () => onReturn.delete(listener);
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useConnection = (): Connection => useSyncExternalStore(subscribe, () => current);
