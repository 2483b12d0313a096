/**
 * Merges the lines of several logs for one viewer by time. Each log is a member, which passes its
 * lines in their own order. A line waits until no other member can have an older one, but not
 * longer than the limits below: then lines of different members can be out of order, and none are
 * lost. The lines of a single member never wait.
 */

/** Consecutive lines of one log. */
export type Chunk = {
  /** Times of the lines, in ms. */
  times: readonly number[];
  /** Sends the lines from index `from` to index `to` - 1. */
  send(from: number, to: number): Promise<void>;
  /** Drops the lines before this index. */
  skip(to: number): void;
  /**
   * True for the older lines at the beginning of a stream. All members together send at most
   * `mostFirst` of these.
   */
  isFirst: boolean;
};

export type MergeMember = {
  /** Sends the lines in turn. Rejects with the error of `send`. */
  pass(chunk: Chunk): Promise<void>;
  /** Says that the log has no further lines for now. */
  rest(): void;
  leave(): void;
};
export type LineMerge = {
  join(): MergeMember;
  /** Number of members. */
  size(): number;
};

/** Time in ms that a line waits for a member without lines. Agents send every 200 ms. */
const WINDOW_MS = 300;
/** Time in ms that lines wait for a member that reads its older lines. */
const FIRST_MS = 2_000;
/** Time in ms that lines wait for a member after it sent its last lines. */
const NEXT_MS = 500;

type Waiting = Chunk & {
  next: number;
  since: number;
  done: PromiseWithResolvers<void>;
};
type State = {
  mostFirst: number;
  members: Set<MemberState>;
  isSending: boolean;
  /** True if the members changed since `sendAll` began. */
  isChanged: boolean;
  hasSent: boolean;
  timer: NodeJS.Timeout | undefined;
};
type MemberState = {
  waiting: Waiting | null;
  /** Monotonic time until which the lines of the other members wait for this member. */
  busyUntil: number;
};

export function createLineMerge(mostFirst: number): LineMerge {
  const state: State = {
    mostFirst,
    members: new Set(),
    isSending: false,
    isChanged: false,
    hasSent: false,
    timer: undefined,
  };
  return { join: () => join(state), size: () => state.members.size };
}

function join(state: State): MergeMember {
  const member: MemberState = { waiting: null, busyUntil: performance.now() + FIRST_MS };
  state.members.add(member);
  return {
    pass(chunk) {
      if (chunk.times.length === 0) return Promise.resolve();
      const done = Promise.withResolvers<void>();
      member.waiting = { ...chunk, next: 0, since: performance.now(), done };
      sendWaiting(state);
      return done.promise;
    },
    rest() {
      member.busyUntil = -Infinity;
      sendWaiting(state);
    },
    leave() {
      state.members.delete(member);
      sendWaiting(state);
    },
  };
}

/**
 * Sends the lines whose turn it is. Runs again when the remaining lines have waited long enough.
 */
function sendWaiting(state: State): void {
  state.isChanged = true;
  if (!state.isSending) void run(state);
}

async function run(state: State): Promise<void> {
  clearTimeout(state.timer);
  state.isSending = true;
  let ms: number | null = null;
  while (state.isChanged) {
    state.isChanged = false;
    ms = await sendAll(state);
  }
  state.isSending = false;
  if (ms !== null) state.timer = setTimeout(() => sendWaiting(state), ms);
}

/**
 * Sends the lines that need not wait. Returns the time in ms until the next ones; null if no lines
 * wait.
 */
async function sendAll(state: State): Promise<number | null> {
  for (;;) {
    const [oldest, other] = waitingMembers(state);
    if (oldest === undefined) return null;
    const ms = waitOf(state, oldest.waiting);
    if (ms > 0) return ms;
    if (!state.hasSent) {
      state.hasSent = true;
      skipFirst(state);
      continue;
    }
    await sendPart(oldest, other === undefined ? Infinity : headOf(other.waiting));
  }
}

type WaitingMember = MemberState & { waiting: Waiting };
const waitingMembers = ({ members }: State): WaitingMember[] =>
  [...members]
    .filter((member): member is WaitingMember => member.waiting !== null)
    .sort((a, b) => headOf(a.waiting) - headOf(b.waiting));

const headOf = ({ times, next }: Waiting): number => times[next] ?? Infinity;

/** Returns the time in ms that the oldest line must still wait for the members without lines. */
function waitOf({ members }: State, { since }: Waiting): number {
  const now = performance.now();
  const ends = [...members]
    .filter(({ waiting }) => waiting === null)
    .map(({ busyUntil }) => Math.max(busyUntil, since + WINDOW_MS));
  return Math.max(0, ...ends.map((end) => end - now));
}

/** Drops the oldest of the first lines until all members together have `mostFirst`. */
function skipFirst(state: State): void {
  const first = waitingMembers(state).filter(({ waiting }) => waiting.isFirst);
  let surplus = first.reduce((sum, { waiting }) => sum + waiting.times.length, -state.mostFirst);
  if (first.length < 2) return;
  for (; surplus > 0; surplus -= 1) {
    const oldest = first.reduce((a, b) => (headOf(b.waiting) < headOf(a.waiting) ? b : a));
    oldest.waiting.next += 1;
  }
  for (const member of first) {
    const { next, times, skip } = member.waiting;
    if (next > 0) skip(next);
    if (next === times.length) end(member);
  }
}

/**
 * Sends the next line of the member, and the following lines up to the time `until`: the time of
 * the oldest line of the other members.
 */
async function sendPart(member: WaitingMember, until: number): Promise<void> {
  const { waiting } = member;
  const { times, next, send, done } = waiting;
  const newer = times.findIndex((time, i) => i > next && time > until);
  const to = newer === -1 ? times.length : newer;
  waiting.next = to;
  try {
    if (to > next) await send(next, to);
    if (to === times.length) end(member);
  } catch (error) {
    free(member);
    done.reject(error);
  }
}

const free = (member: MemberState): void => void (member.waiting = null);

function end(member: WaitingMember): void {
  const { done } = member.waiting;
  free(member);
  member.busyUntil = performance.now() + NEXT_MS;
  done.resolve();
}
