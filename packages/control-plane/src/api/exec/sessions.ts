/**
 * The open exec sessions, tunnels and inputs of runs of this control plane, and those that wait for
 * their agents.
 *
 *   ticket used ──▶ waiting ── the agent connects ──▶ open ── exit, a side leaves, idle, rights end ──▶ ended
 *                      └── no agent within AGENT_MS ──▶ ended
 *
 * With two control planes, client and agent can reach different ones. The client's end decides: the
 * agent is refused elsewhere (`wrong_state`) and connects again, until the balancer leads it to the
 * control plane with the client, as with chunks of moving volumes (volume-channels.ts). So the bytes
 * go through one process, and none of them goes through the database.
 *
 * One timer serves all sessions, and runs only while there are some: an idle session costs two
 * sockets.
 */
import type { AuditStore } from '../../domain/identity/identity-stores.ts';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import type { EndMessage } from '@berth/wire/exec';
import type { WebSocket } from 'ws';
import { roleIn } from '../../domain/identity/access.ts';
import {
  checkSession,
  type ExecKind,
  type ExecRecord,
  type ExecSessionStore,
} from '../../domain/exec/exec-sessions.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';
import { MAX_DETAIL } from '../audit.ts';
import type { Caller, Callers } from '../auth/callers.ts';
import { createRelay, type Relay } from './relay.ts';

export type ExecLimits = {
  /** Sessions of one control plane, and of one person there. */
  most: number;
  mostOfUser: number;
  /**
   * Time in ms without a byte after which a session ends. The input of a run has none: a command that
   * reads slowly would take its end for the end of the data.
   */
  idleMs: number;
  /** Time in ms in which the agent must connect. */
  agentMs: number;
  /** Interval in ms at which idle time and rights are checked. */
  checkMs: number;
};
export const EXEC_LIMITS: ExecLimits = {
  most: 200,
  mostOfUser: 100,
  idleMs: 15 * 60_000,
  agentMs: 15_000,
  checkMs: 2_000,
};
/** Interval in ms of pings, which keep proxies from closing idle connections. */
const PING_MS = 30_000;
/** Times in ms after which the agent is called again: a notification can get lost. */
const CALL_AGAIN_MS = [1_000, 3_000, 6_000];

export type Deps = {
  stores: { execSessions: ExecSessionStore };
  projects: Pick<ProjectStore, 'get'>;
  callers: Pick<Callers, 'again'>;
  audit: Pick<AuditStore, 'append'>;
  changes: Pick<Changes, 'notify' | 'on'>;
  uptime: Pick<UptimeClock, 'estimate'>;
  execLimits?: Partial<ExecLimits>;
  now: () => number;
  log: Logger;
};

export type Opened = { record: ExecRecord; user: Caller; address: string; requestId: string };
type Session = Opened & {
  relay: Relay;
  startedAt: number;
  timers: NodeJS.Timeout[];
  pingedAt: number;
};

export type ExecSessions = {
  /** Throws too_many_requests if this person, or everybody together, has too many sessions. */
  checkRoom(userId: string): void;
  /** Adds the client of a used ticket, and calls its agent. */
  open(opened: Opened, client: WebSocket): Promise<void>;
  /** Returns whether the client of this session is connected here and has no agent yet. */
  isWaiting(id: string): boolean;
  /** Adds the agent of a session. */
  join(id: string, agent: WebSocket): Promise<void>;
  /** Returns the ids of the sessions that wait for an agent of the node; null: none. */
  waitingFor(nodeId: string): string | null;
  count(): number;
  close(): void;
};

type State = {
  deps: Deps;
  limits: ExecLimits;
  sessions: Map<string, Session>;
  /** By node, as the polls of agents show them. */
  waiting: Map<string, string>;
  timer: NodeJS.Timeout | undefined;
  isClosed: boolean;
};

export function createExecSessions(deps: Deps): ExecSessions {
  const state: State = {
    deps,
    limits: { ...EXEC_LIMITS, ...deps.execLimits },
    sessions: new Map(),
    waiting: new Map(),
    timer: undefined,
    isClosed: false,
  };
  deps.changes.on('exec', () => void readWaiting(state));
  // Rights may have ended, or a project may have been switched off.
  for (const topic of ['access', 'policy'] as const)
    deps.changes.on(topic, () => void checkAll(state));
  return {
    checkRoom: (userId) => checkRoom(state, userId),
    open: (opened, client) => open(state, opened, client),
    isWaiting: (id) => state.sessions.get(id)?.relay.hasAgent() === false,
    async join(id, agent) {
      const session = state.sessions.get(id);
      if (session === undefined || session.relay.hasAgent()) return agent.terminate();
      for (const timer of session.timers) clearTimeout(timer);
      session.relay.join(agent, session.record.agent_order);
      await removeRow(state, id);
    },
    waitingFor: (nodeId) => state.waiting.get(nodeId) ?? null,
    count: () => state.sessions.size,
    close() {
      state.isClosed = true;
      for (const { relay } of state.sessions.values())
        relay.end({
          type: 'error',
          message: 'the control plane stops, which ends the session; nothing is resumed',
        });
    },
  };
}

function checkRoom({ sessions, limits }: State, userId: string): void {
  const ofUser = [...sessions.values()].filter(({ user }) => user.id === userId).length;
  if (sessions.size >= limits.most || ofUser >= limits.mostOfUser)
    throw new DomainError('too_many_requests', 'too many exec sessions are open; close some first');
}

async function open(state: State, opened: Opened, client: WebSocket): Promise<void> {
  const { deps, limits, sessions } = state;
  const { id } = opened.record;
  const session: Session = {
    ...opened,
    relay: createRelay(client, { onEnd: (end) => void ended(state, session, end) }),
    startedAt: deps.now(),
    timers: [],
    pingedAt: performance.now(),
  };
  sessions.set(id, session);
  state.timer ??= setInterval(() => void tick(state), limits.checkMs).unref();
  const call = (): void => deps.changes.notify('exec');
  session.timers.push(
    ...CALL_AGAIN_MS.map((ms) => setTimeout(call, ms).unref()),
    setTimeout(
      () =>
        session.relay.end({
          type: 'error',
          message:
            `the agent of ${opened.record.place.node} did not connect within ` +
            `${Math.round(limits.agentMs / 1000)} s`,
        }),
      limits.agentMs,
    ).unref(),
  );
  call();
}

/** Reads which sessions wait, and wakes the polls of their nodes. */
async function readWaiting(state: State): Promise<void> {
  const { deps, limits } = state;
  try {
    const since = deps.uptime.estimate().at - 2 * limits.agentMs;
    const rows = await deps.stores.execSessions.waiting(since);
    const old = state.waiting;
    state.waiting = new Map(
      [...Map.groupBy(rows, ({ node_id }) => node_id)].map(([node, ofNode]) => [
        node,
        ofNode.map(({ id }) => id).join(','),
      ]),
    );
    const nodes = new Set([...old.keys(), ...state.waiting.keys()]);
    for (const node of nodes)
      if (old.get(node) !== state.waiting.get(node)) deps.changes.notify(`node:${node}`);
  } catch (err) {
    if (!state.isClosed) deps.log.warn({ err }, 'reading the waiting exec sessions failed');
  }
}

async function removeRow({ deps, isClosed }: State, id: string): Promise<void> {
  try {
    await deps.stores.execSessions.remove(id);
    deps.changes.notify('exec');
  } catch (err) {
    if (!isClosed) deps.log.warn({ err }, 'removing an exec session failed; it expires by itself');
  }
}

const END_ACTIONS = {
  exec: 'execEnd',
  tunnel: 'tunnelEnd',
  input: 'runInputEnd',
} as const satisfies Record<ExecKind, string>;

async function ended(state: State, session: Session, end: EndMessage | null): Promise<void> {
  const { deps, sessions } = state;
  const { record, user, address, requestId, relay } = session;
  for (const timer of session.timers) clearTimeout(timer);
  sessions.delete(record.id);
  if (sessions.size === 0) {
    clearInterval(state.timer);
    state.timer = undefined;
  }
  if (!relay.hasAgent()) await removeRow(state, record.id);
  const isDone = end === null || end.type === 'exit';
  try {
    await deps.audit.append({
      at: deps.now(),
      email: user.email.toLowerCase(),
      via: user.credential.kind,
      action: END_ACTIONS[record.kind],
      target: record.project_id,
      address,
      outcome: isDone ? 'done' : 'failed',
      status: 101,
      code: null,
      request_id: requestId,
      detail: endText(session, end, deps.now()).slice(0, MAX_DETAIL),
    });
  } catch (err) {
    deps.log.error({ err, session: record.id }, 'could not write to the audit log');
  }
}

function endText({ record, relay, startedAt }: Session, end: EndMessage | null, now: number) {
  const seconds = Math.max(0, Math.round((now - startedAt) / 1000));
  const { up, down } = relay.bytes();
  const how = end === null ? 'the client left' : endWords(end);
  // The command comes last, because it can be long.
  return `${how}; ${up} bytes in, ${down} bytes out, ${seconds} s; ${orderText(record)}`;
}

const endWords = (end: EndMessage): string =>
  end.type === 'exit' ? `exit ${end.code}` : end.message;

/** Returns where and what, for the audit log. */
export function orderText({ place, agent_order }: Pick<ExecRecord, 'place' | 'agent_order'>) {
  if (agent_order.kind === 'input')
    return `${place.project}, run ${agent_order.run} on ${place.node}`;
  const where = `${place.project}, ${place.process} ${place.number} on ${place.node}`;
  return agent_order.kind === 'exec'
    ? `${where}: ${JSON.stringify(agent_order.command)}`
    : `${where}: port ${agent_order.port}`;
}

async function tick(state: State): Promise<void> {
  const now = performance.now();
  for (const session of state.sessions.values()) {
    const { relay, record } = session;
    if (record.kind !== 'input' && now - relay.activeAt() > state.limits.idleMs) {
      const minutes = Math.round(state.limits.idleMs / 60_000);
      relay.end({
        type: 'error',
        message: `the session ended after ${minutes} minutes without a byte in either direction`,
      });
    } else if (now - session.pingedAt > PING_MS) {
      session.pingedAt = now;
      relay.ping();
    }
  }
  await checkAll(state);
}

/** Ends the sessions whose rights have ended. Equal rights are checked once. */
async function checkAll(state: State): Promise<void> {
  const groups = Map.groupBy(state.sessions.values(), ({ record }) =>
    JSON.stringify([record.kind, record.project_id, record.credential]),
  );
  for (const [, sessions] of groups) {
    const [first] = sessions;
    const why = first === undefined ? null : await whyEnded(state, first.record);
    if (why !== null)
      for (const { relay } of sessions)
        relay.end({ type: 'error', message: `the session ended: ${why}` });
  }
}

/** Returns why the rights have ended; null if they have not, or if the database does not answer. */
async function whyEnded({ deps, isClosed }: State, record: ExecRecord): Promise<string | null> {
  try {
    await checkRights(deps, record);
    return null;
  } catch (error) {
    if (error instanceof DomainError) return messageOf(error);
    if (!isClosed) deps.log.warn({ err: error }, 'checking the rights of exec sessions failed');
    return null;
  }
}

/** Returns the person as of now. Throws if the rights of the session have ended. */
export async function checkRights(
  { callers, projects }: Pick<Deps, 'callers' | 'projects'>,
  { credential, project_id, kind }: Pick<ExecRecord, 'credential' | 'project_id' | 'kind'>,
): Promise<Caller> {
  const user = await callers.again(credential);
  if (user === null || user.id !== credential.user_id)
    throw new DomainError('unauthenticated', 'you are signed out, or your account is disabled');
  const project = await projects.get(project_id);
  if (project.deleting_at !== null)
    throw new DomainError('being_deleted', `project ${project.name} is being deleted`);
  const role = roleIn(project, user);
  if (role === null) throw new DomainError('not_found', 'the project does not exist');
  checkSession(kind, project, role);
  return user;
}
