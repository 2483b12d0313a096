/** The secrets that `berth rotate` replaces. */
import { randomBytes } from 'node:crypto';
import type { RotatedSetting, Rotation } from '@berth/wire/rotation';

export type RotatedSecret = {
  name: string;
  setting: RotatedSetting;
  /** Processes that verify with the secret. They must accept a new value before anybody uses it. */
  verifiers: readonly ('control-plane' | 'gateway')[];
  make(): string;
  /** Says what breaks if an older value is removed too early. */
  breaks: string;
};

const hex = (): string => randomBytes(32).toString('hex');

export const SECRETS = {
  agent: {
    name: 'agent',
    setting: 'AGENT_SECRET',
    verifiers: ['control-plane'],
    make: hex,
    breaks: 'these agents get 401 until they send the new value; their containers run on',
  },
  gateway: {
    name: 'gateway',
    setting: 'GATEWAY_SECRET',
    verifiers: ['control-plane', 'gateway'],
    make: hex,
    breaks:
      'these gateways get 401: nobody signs in there, and they keep the last policy, until ' +
      'they have the new value',
  },
  session: {
    name: 'session',
    setting: 'SESSION_SECRET',
    verifiers: ['gateway'],
    make: hex,
    breaks: 'everybody who signed in with the earlier value signs in again',
  },
  jwt: {
    name: 'jwt',
    setting: 'JWT_SECRET',
    verifiers: ['control-plane'],
    make: hex,
    breaks:
      'API tokens of sessions get 401, and their clients refresh them; personal API tokens ' +
      'stay valid',
  },
  secrets: {
    name: 'secrets',
    setting: 'SECRETS_KEY',
    verifiers: ['control-plane'],
    make: () => randomBytes(32).toString('base64'),
    breaks: 'nobody can decrypt the secrets of these projects any more',
  },
} as const satisfies Record<string, RotatedSecret>;

/**
 * Returns the running processes that verify with this secret, and the fingerprints of their values.
 */
export function verifiersIn(
  rotation: Rotation,
  { setting, verifiers }: RotatedSecret,
): { kind: string; name: string; values: string[] }[] {
  const of = (
    kind: string,
    all: readonly { name: string; running: boolean; values: Record<string, string[]> }[],
  ) =>
    all
      .filter((one) => one.running)
      .map(({ name, values }) => ({ kind, name, values: values[setting] ?? [] }));
  return [
    ...(verifiers.includes('control-plane') ? of('control plane', rotation.control_planes) : []),
    ...(verifiers.includes('gateway') ? of('gateway', rotation.gateways) : []),
  ];
}
