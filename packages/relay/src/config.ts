/** Settings of the relay. docs/settings.md is generated from this table. */
import {
  absolutePath,
  httpUrl,
  LOG_SETTINGS,
  listen,
  readSettings,
  type Values,
} from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { createReloading, type Reloading } from '@berth/kit/reload';

export const SETTINGS = {
  LISTEN: {
    doc: 'Address on which the relay serves the reverse proxy’s HTTP provider',
    default: '127.0.0.1:8082',
    parse: listen,
  },
  CONTROL_PLANE_URL: {
    doc: 'Internal address of the control plane, e.g. http://10.0.0.1:8080',
    required: true,
    parse: httpUrl,
  },
  STATE_DIR: {
    doc: 'Folder for the last good configuration',
    default: '/var/lib/berth-relay',
    parse: absolutePath,
  },
  ...LOG_SETTINGS,
} as const;

export type RelayConfig = Values<typeof SETTINGS> & { logFormat: 'json' | 'pretty' };

/**
 * Handles SIGHUP by logging which settings changed in a file. The relay has no secrets to replace.
 */
export const reloading = (
  logger: () => Logger,
  env: NodeJS.ProcessEnv = process.env,
): Reloading<typeof SETTINGS> => createReloading(SETTINGS, env, logger);

/** Reads all settings. Throws SettingsError, which names every wrong variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): RelayConfig {
  const values = readSettings(SETTINGS, env);
  return { ...values, logFormat: values.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json') };
}
