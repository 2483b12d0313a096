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
  /** Sends the lines from index `from` up to, and without, index `to`. */
  send(from: number, to: number): Promise<void>;
  /** Leaves out the lines before this index. */
  skip(to: number): void;
  /** The older lines at the beginning of a stream: at most `mostFirst` of all members are sent. */
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

/** How long a line waits for lines of a member that has none now. Agents send every 200 ms. */
const WINDOW_MS = 300;
/** How long lines wait for a member that reads its older lines. */
const FIRST_MS = 2_000;
/** How long lines wait for the next lines of a member after its last ones. */
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
  /** Monotonic time until which the other members wait for lines of this one. */
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

/** Sends the waiting lines whose turn it is, and looks again when the others have waited enough. */
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

/** Returns the time in ms after which the next lines can be sent; null if none wait. */
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

/** Returns how long the oldest line must still wait for the members without lines. */
function waitOf({ members }: State, { since }: Waiting): number {
  const now = performance.now();
  const ends = [...members]
    .filter(({ waiting }) => waiting === null)
    .map(({ busyUntil }) => Math.max(busyUntil, since + WINDOW_MS));
  return Math.max(0, ...ends.map((end) => end - now));
}

/** Leaves out the oldest ones of the first lines, so that `mostFirst` lines of all are left. */
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

/** Sends the lines of the member that are not newer than `until`: the oldest line of the others. */
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
