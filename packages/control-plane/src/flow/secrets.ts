/**
 * Decides how a project’s secrets affect its tasks and releases. Pure: decisions know names and
 * fingerprints, never values.
 */
import type { BuildPayload, DeployPayload } from '@berth/wire/task';
import { CAN_SECRET_FILES, CAN_SECRETS } from '@berth/wire/secret';
import { lack, type Need } from '../domain/nodes/build-needs.ts';
import type { NoNodeCan } from '../domain/deployments/wait-reason.ts';
import type { NodeRecord, SecretPrint } from '../domain/platform/records.ts';
import type { SecretRecord } from '../domain/secrets/secrets.ts';

type Secrets = readonly SecretRecord[];

/** Returns the payload fields that name the secrets of a build; empty without secrets. */
export function buildSecrets(secrets: Secrets): Pick<BuildPayload, 'secrets'> {
  const names = secrets.filter((s) => s.scope === 'build').map(({ name }) => ({ name }));
  return names.length === 0 ? {} : { secrets: names };
}
export function deploySecrets(secrets: Secrets): Pick<DeployPayload, 'secrets'> {
  const names = secrets.filter((s) => s.scope === 'run').map(({ name, as }) => ({ name, as }));
  return names.length === 0 ? {} : { secrets: names };
}

/**
 * Returns the agent capabilities that the secrets need. Env secrets of a container need none: they
 * are part of the payload.
 */
export function secretNeeds(secrets: Secrets, role: NodeRecord['role']): Need[] {
  const needed = secrets.filter((s) =>
    role === 'builder' ? s.scope === 'build' : s.scope === 'run' && s.as === 'file',
  );
  if (needed.length === 0) return [];
  const noun = needed.length === 1 ? 'secret' : 'secrets';
  const names = `${noun} ${needed.map((s) => s.name).join(', ')}`;
  return role === 'builder'
    ? [{ capability: CAN_SECRETS, what: `give the build the ${names}` }]
    : [
        {
          capability: CAN_SECRET_FILES,
          what: `mount the ${names} as a file`,
          because: 'is of an earlier version, or its SECRETS_DIR is not on tmpfs',
        },
      ];
}

/**
 * Returns the reason for `agent_cannot` if no deploy node, online or offline, supports the work;
 * else null.
 */
export function noNodeCan(needs: readonly Need[], nodes: readonly NodeRecord[]): NoNodeCan | null {
  const deployNodes = nodes.filter((n) => n.role === 'deploy' && n.deleting_at === null);
  const lacks = deployNodes.map((node) => lack(node, needs));
  const [first, lackOfFirst] = [deployNodes[0], lacks[0] ?? null];
  if (first === undefined || lackOfFirst === null || lacks.includes(null)) return null;
  return {
    kind: 'no_node_can',
    nodes: deployNodes.length,
    node: first.hostname,
    lack: lackOfFirst,
  };
}

/**
 * Returns a story line about secrets that differ from those of the release, or null. A release
 * always gets the current values.
 */
export function secretsLine(
  release: { generation: number; secrets: readonly SecretPrint[] | null },
  secrets: Secrets,
): string | null {
  const released = new Map((release.secrets ?? []).map((s) => [s.name, s.fingerprint]));
  const now = new Map(secrets.filter((s) => s.scope === 'run').map((s) => [s.name, s.fingerprint]));
  const changed = [...now]
    .filter(([name, print]) => released.has(name) && released.get(name) !== print)
    .map(([name]) => name);
  const added = [...now.keys()].filter((name) => !released.has(name));
  const removed = [...released.keys()].filter((name) => !now.has(name));
  const parts = [
    ...(changed.length === 0
      ? []
      : [
          `${changed.join(', ')} ` +
            (changed.length === 1 ? 'has another value' : 'have other values'),
        ]),
    ...(added.length === 0 ? [] : [`${added.join(', ')} ${added.length === 1 ? 'is' : 'are'} new`]),
    ...(removed.length === 0
      ? []
      : [`${removed.join(', ')} ${removed.length === 1 ? 'was' : 'were'} deleted`]),
  ];
  return parts.length === 0
    ? null
    : `uses the current secrets; since deployment ${release.generation}, ${parts.join('; ')}`;
}
