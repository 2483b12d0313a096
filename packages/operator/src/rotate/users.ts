/** Finds who still uses an older value of a secret. Pure. */
import type { Rotation } from '@berth/wire/rotation';
import { type RotatedSecret, verifiersIn } from './names.ts';

/** A gateway that sent an older value within this time might send it again. */
const SENT_MS = 5 * 60_000;

export type Users = {
  /** Users that would break if the older values were removed now. */
  blocking: string[];
  /** Notes for the operator; they do not block the rotation. */
  notes: string[];
};

/** `current`: fingerprint of the new value; `earlier`: fingerprints of the values to remove. */
export function usersOf(
  secret: RotatedSecret,
  current: string,
  earlier: readonly string[],
  rotation: Rotation,
  now: number,
): Users {
  const blocking: string[] = [];
  const notes: string[] = [];
  for (const { kind, name, values } of verifiersIn(rotation, secret))
    if (values[0] !== current)
      blocking.push(`${kind} ${name}: does not have the new value in front`);
  const all = [...rotation.control_planes, ...rotation.gateways];
  for (const { name, running, seen_at } of all)
    if (!running)
      notes.push(
        `${name} stopped reporting at ${seen_at}: if it starts again, give it the new value first`,
      );
  const isEarlier = (fingerprint: string): boolean => earlier.includes(fingerprint);
  const { setting } = secret;

  if (setting === 'AGENT_SECRET') {
    for (const node of rotation.nodes) {
      if (node.fingerprint === current) continue;
      const who =
        `node ${node.name} (${node.role}, ` +
        `${node.agent_version === null ? 'contract-only agent' : `agent ${node.agent_version}`})`;
      blocking.push(
        node.fingerprint === null
          ? `${who}: uses AGENT_SECRET; it has not registered since the control plane records ` +
              `which value (last seen ${node.seen_at})`
          : `${who}: last used the earlier value at ${node.seen_at}`,
      );
    }
  }
  if (setting === 'GATEWAY_SECRET') {
    for (const gateway of rotation.gateways)
      if (gateway.running && gateway.sends !== current)
        blocking.push(`gateway ${gateway.name}: sent the earlier value at ${gateway.seen_at}`);
    for (const { fingerprint, address, seen_at } of rotation.senders)
      if (isEarlier(fingerprint) && now - Date.parse(seen_at) < SENT_MS)
        blocking.push(`a gateway at ${address}: sent the earlier value at ${seen_at}`);
  }
  const what = setting === 'SESSION_SECRET' ? 'sessions of people' : 'API tokens of sessions';
  for (const { fingerprint, until } of rotation.signed.filter((one) => one.setting === setting))
    if (isEarlier(fingerprint) && Date.parse(until) > now)
      blocking.push(`${what} that the earlier value signed: until ${until}`);
  if (setting === 'JWT_SECRET')
    notes.push(
      'a request that is repeated with its Idempotency-Key after 24 h or less gets 409 if the ' +
        'earlier value sealed the stored answer',
    );
  if (setting === 'SECRETS_KEY') {
    const wrapping = new Set(
      rotation.control_planes.filter((one) => one.running).map((one) => one.key_id),
    );
    for (const [id, count] of Object.entries(rotation.project_keys))
      if (!wrapping.has(id))
        blocking.push(
          `${count} project key${count === 1 ? '' : 's'} wrapped by the key with the id ${id}`,
        );
    notes.push('backups from before need the earlier key: keep it with them (docs/backup.md)');
  }
  return { blocking, notes };
}
