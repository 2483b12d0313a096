/**
 * The state of one proxy. Functions of this package take it, or a part of it, as first parameter.
 */
import type http from 'node:http';
import { hostname } from 'node:os';
import type { Duplex } from 'node:stream';
import type { Listen } from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { type Agents, createAgents } from './request.ts';
import { EMPTY_TABLE, type Table } from './router.ts';

export type ProxyState = {
  readonly log: Logger;
  /** Name of this machine, for `X-Forwarded-Server`. */
  readonly serverName: string;
  /** The current routes. Routes are switched by one assignment. */
  table: Table;
  /** Reason why the proxy is not ready; null means ready. */
  unready: string | null;
  closing: boolean;
  /** The configured address; null before `listen`. */
  listens: Listen | null;
  /** Counts requests, so that the servers of a service take turns. */
  turn: number;
  /** Sockets of WebSockets. */
  readonly upgraded: Set<Duplex>;
  /** Kept-alive connections to backends, by origin. */
  readonly backends: Map<string, http.Agent>;
  readonly authAgents: Agents;
};

export const newState = (log: Logger): ProxyState => ({
  log,
  serverName: hostname(),
  table: EMPTY_TABLE,
  unready: 'no configuration has been loaded yet',
  closing: false,
  listens: null,
  turn: 0,
  upgraded: new Set(),
  backends: new Map(),
  authAgents: createAgents({ keepAlive: true, maxSockets: 256 }),
});
