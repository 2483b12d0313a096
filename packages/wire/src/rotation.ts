/**
 * Shows which processes use which value of a shared secret (`berth rotate`). Values appear as
 * fingerprints (kit/fingerprint.ts).
 */
import { type Static, Type } from 'typebox';
import { literals, orNull, Time } from './vocabulary.ts';

export const ROTATED_SETTINGS = [
  'AGENT_SECRET',
  'GATEWAY_SECRET',
  'SESSION_SECRET',
  'JWT_SECRET',
  'SECRETS_KEY',
] as const;
export type RotatedSetting = (typeof ROTATED_SETTINGS)[number];

const Fingerprint = Type.String({ pattern: '^[0-9a-f]{12}$' });
const Setting = literals(ROTATED_SETTINGS);
const Values = Type.Record(
  Type.String({ maxLength: 64 }),
  Type.Array(Fingerprint, { maxItems: 16 }),
  {
    description: 'fingerprints of the values in use by setting, the current one first',
  },
);

/** Report of a gateway process; each worker sends its own. */
export const GatewaySeen = Type.Object({
  id: Type.String({ pattern: '^[\\w-]{1,64}$', description: 'id of this process' }),
  name: Type.String({
    minLength: 1,
    maxLength: 200,
    description: 'host name and address of the gateway',
  }),
  values: Values,
  session_seconds: Type.Integer({
    minimum: 1,
    maximum: 100 * 86_400,
    description: 'lifetime of a session that this gateway signs',
  }),
  stopped: Type.Optional(Type.Boolean({ description: 'true: the process stops now' })),
});
export type GatewaySeen = Static<typeof GatewaySeen>;

const Process = {
  name: Type.String(),
  seen_at: Time,
  running: Type.Boolean({ description: 'false: it stopped reporting' }),
  values: Values,
};
export const Rotation = Type.Object({
  control_planes: Type.Array(
    Type.Object({
      ...Process,
      key_id: Type.String({ description: 'id of the key that wraps project keys' }),
    }),
  ),
  gateways: Type.Array(Type.Object({ ...Process, address: Type.String(), sends: Fingerprint })),
  senders: Type.Array(
    Type.Object({ fingerprint: Fingerprint, address: Type.String(), seen_at: Time }),
    {
      description: 'requests with an earlier GATEWAY_SECRET',
    },
  ),
  signed: Type.Array(Type.Object({ setting: Setting, fingerprint: Fingerprint, until: Time }), {
    description: 'until when something lives that a value signed',
  }),
  nodes: Type.Array(
    Type.Object({
      name: Type.String(),
      role: Type.String(),
      agent_version: orNull(Type.String()),
      fingerprint: orNull(Fingerprint),
      seen_at: Time,
    }),
    { description: 'nodes that use AGENT_SECRET; empty for a gateway' },
  ),
  project_keys: Type.Record(Type.String(), Type.Integer(), {
    description: 'number of project keys by the id of the key that wraps them',
  }),
});
export type Rotation = Static<typeof Rotation>;
