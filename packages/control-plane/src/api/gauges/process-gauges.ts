/** Gauges of this process: build, clock, disk, connections, loops. */
import type { Connections } from '@berth/kit/connections';
import { diskOf } from '../disk.ts';
import type { Holds } from '../long-poll.ts';
import type { ApiSettings, LoopStatus } from '../settings.ts';
import type { GaugeRow } from './gauge-row.ts';

export type Deps = {
  loops: () => readonly LoopStatus[];
  settings: Pick<ApiSettings, 'version'>;
  /** Folder of the SQLite file or STATE_DIR; null with a database in memory. */
  dataFolder: string | null;
  connections: Pick<Connections, 'limit' | 'open'>;
  holds: Pick<Holds, 'counts'>;
};

export const processGauges = ({
  loops,
  settings,
  dataFolder,
  connections,
  holds,
}: Deps): GaugeRow[] => [
  {
    name: 'berth_build_info',
    help: 'Always 1; the labels are the versions of Berth and Node.js',
    labels: ['version', 'node'],
    read: () => [{ labels: { version: settings.version, node: process.versions.node }, value: 1 }],
  },
  {
    name: 'berth_clock_seconds',
    help: 'Clock of this machine, in seconds since 1970, at the scrape',
    labels: [],
    read: () => [{ labels: {}, value: Date.now() / 1000 }],
  },
  {
    name: 'berth_disk_free_bytes',
    help: 'Free bytes of the disk with the data folder of the control plane (database or STATE_DIR)',
    labels: [],
    read: async () =>
      dataFolder === null ? [] : [{ labels: {}, value: (await diskOf(dataFolder)).free }],
  },
  {
    name: 'berth_disk_size_bytes',
    help: 'Size in bytes of the disk with the data folder of the control plane',
    labels: [],
    read: async () =>
      dataFolder === null ? [] : [{ labels: {}, value: (await diskOf(dataFolder)).size }],
  },
  {
    name: 'berth_http_requests_held',
    help: 'Open held requests: long polls and streams',
    labels: ['kind'],
    read: () =>
      Object.entries(holds.counts()).map(([kind, value]) => ({ labels: { kind }, value })),
  },
  {
    name: 'berth_http_connections',
    help: 'Open connections',
    labels: [],
    read: () => [{ labels: {}, value: connections.open() }],
  },
  {
    name: 'berth_http_connections_limit',
    help: 'MAX_CONNECTIONS, or less if the limit of open files is lower',
    labels: [],
    read: () => [{ labels: {}, value: connections.limit }],
  },
  {
    name: 'berth_loop_last_success_timestamp_seconds',
    help: 'Time of the last run of a loop without an error; 0 if there was none',
    labels: ['loop'],
    read: () => loops().map((l) => ({ labels: { loop: l.name }, value: (l.lastOkAt ?? 0) / 1000 })),
  },
  {
    name: 'berth_loop_failing',
    help: '1 if the last run of a loop failed, else 0',
    labels: ['loop'],
    read: () =>
      loops().map((l) => ({ labels: { loop: l.name }, value: l.lastError === null ? 0 : 1 })),
  },
];
