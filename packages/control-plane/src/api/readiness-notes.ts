/**
 * Notes of /readyz: warnings for an admin that do not make the control plane unready. The answer is
 * public, so notes contain neither names nor addresses; `berth status` or the log has them.
 */
import type { Logger } from '@berth/kit/log';
import type { OperatorNote } from '@berth/wire/system';
import type { Limits } from '../domain/deployments/facts.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import { RESTORED, type Restored } from '../domain/platform/backups.ts';
import type { MetaStore } from '../domain/platform/meta-store.ts';
import type { AliasWatch, CertificateWatch, ConfigSource } from '../domain/routes/configuration.ts';
import { keptFor } from './kept-for.ts';
import type { NodeNotes } from './node-notes.ts';
import type { Quarantine } from './node-quarantine.ts';
import type { ApiSettings } from './settings.ts';

export type Deps = {
  settings: Pick<ApiSettings, 'notes'>;
  nodes: Pick<NodeStore, 'countUnlimited' | 'listDoubled'>;
  meta: Pick<MetaStore, 'get'>;
  source: Pick<ConfigSource, 'problems'>;
  /** Absent if PROXY_PROBE_URLS is not set. */
  aliases?: Pick<AliasWatch, 'kept'>;
  /** Absent without an https address in PROXY_PROBE_URLS. */
  certificates?: Pick<CertificateWatch, 'problems'>;
  nodeNotes: readonly Pick<NodeNotes, 'kind' | 'notes'>[];
  quarantine: Pick<Quarantine, 'notes'>;
  limits: Pick<Limits, 'offlineMs'>;
  now: () => number;
  log: Logger;
};

/**
 * Cache time: /readyz is public, so the number of requests must not determine the number of
 * queries.
 */
const QUERY_KEPT_MS = 5_000;
const RESTORED_SHOWN_MS = 7 * 24 * 3_600_000;

export function createReadinessNotes(deps: Deps): () => Promise<OperatorNote[]> {
  const doubled = keptFor(QUERY_KEPT_MS, () => doubledNotes(deps));
  const unlimited = keptFor(QUERY_KEPT_MS, () => unlimitedNotes(deps));
  const restored = createRestoredNotes(deps);
  return async () => [
    ...deps.settings.notes,
    ...ofKind('other', aliasNotes(deps)),
    ...ofKind('certificates', certificateNotes(deps)),
    ...ofKind('other', unroutedNotes(deps)),
    ...ofKind('other', await doubled()),
    ...ofKind('other', await unlimited()),
    ...ofKind('other', await restored()),
    ...deps.nodeNotes.flatMap((one) => ofKind(one.kind, one.notes())),
    ...ofKind('other', deps.quarantine.notes()),
  ];
}

const ofKind = (kind: OperatorNote['kind'], texts: readonly string[]): OperatorNote[] =>
  texts.map((text) => ({ kind, text }));

const counted = (count: number, one: string, several: string): string =>
  count === 1 ? `1 ${one}` : `${count} ${several}`;

const aliasNotes = ({ aliases }: Deps): string[] =>
  aliases?.kept() === true
    ? [
        'the reverse proxy forwards request headers like X!Forwarded!User, which an ' +
          'application may read as X-Forwarded-User: run Traefik ' +
          '3.7.13 or newer with aliasHeadersStrategy: delete on both entry points',
      ]
    : [];

function certificateNotes({ certificates }: Deps): string[] {
  const count = certificates?.problems().length ?? 0;
  if (count === 0) return [];
  return [
    `${counted(count, 'host has', 'hosts have')} no good certificate: berth status names them`,
  ];
}

function unroutedNotes({ source }: Deps): string[] {
  const count = source.problems().length;
  if (count === 0) return [];
  return [
    `${counted(count, 'route is', 'routes are')} not published: the log has the projects and the ` +
      'reasons',
  ];
}

async function doubledNotes({ nodes, limits, now, log }: Deps): Promise<string[]> {
  try {
    const isRecent = (lastSeenAt: number): boolean =>
      Math.abs(now() - lastSeenAt) < limits.offlineMs;
    const { length } = (await nodes.listDoubled()).filter(
      ({ doubled }) => doubled !== null && isRecent(doubled.last_seen_at),
    );
    if (length === 0) return [];
    return [
      `${counted(length, 'node name', 'node names')}: a second machine tries to register and is ` +
        'refused: berth status names them',
    ];
  } catch (error) {
    log.debug({ err: error }, 'could not read doubled nodes');
    return [];
  }
}

async function unlimitedNotes({ nodes, log }: Deps): Promise<string[]> {
  try {
    const count = await nodes.countUnlimited();
    if (count === 0) return [];
    const runs = counted(count, 'deployment has', 'deployments have');
    return [
      `${runs} no memory limit (memory_bytes): placement counts no memory for a container without one`,
    ];
  } catch (error) {
    log.debug({ err: error }, 'could not count deployments without a memory limit');
    return [];
  }
}

/**
 * Reads the restore row once: it is written before the control plane starts, so it does not change.
 */
function createRestoredNotes({ meta, now, log }: Deps): () => Promise<string[]> {
  let row: Restored | 'never' | null = null;
  return async () => {
    try {
      row ??= JSON.parse((await meta.get(RESTORED)) ?? '"never"') as Restored | 'never';
    } catch (error) {
      log.error({ err: error }, 'could not read when the database was restored');
    }
    if (row === null || row === 'never') return [];
    const { restored_at, backup_at } = row;
    if (now() - Date.parse(restored_at) > RESTORED_SHOWN_MS) return [];
    return [
      `restored on ${restored_at} from the backup of ${backup_at}: Berth does not know what ` +
        'was deployed after that',
    ];
  };
}
