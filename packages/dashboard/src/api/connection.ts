/** Whether the control plane answers, and since when. All parts of the page read this one state. */
import { useSyncExternalStore } from 'react';

/**
 * `away`: no answer since `since`; `seenAt` is the time of the last answer. `signed_out`: the
 * session is over. `outdated`: the control plane was upgraded, and this tab runs the page of the
 * version before.
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
    // The time of each answer is stored without a render.
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
 * Other tabs of this browser have the same cookie: a sign-in in one of them is one in all, perhaps
 * as another person.
 */
const tabs = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('berth-sign-in');
tabs?.addEventListener('message', () => {
  for (const listener of onReturn) listener();
});

export const reportSignIn = (): void => tabs?.postMessage('signed in');

/**
 * The control plane said who the person of the session is. Only this ends the wait, so nobody uses
 * the page of somebody else.
 */
export function reportPerson(): void {
  if (current.signedOut) set({ signedOut: false });
}

/**
 * Calls `listener` when the control plane answers again, and after a sign-in in another tab.
 * Returns the function that removes it.
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
