/** All settings of the development proxy. docs/settings.md is generated from this table. */
import {
  httpUrl,
  LOG_SETTINGS,
  listen,
  readSettings,
  SettingsError,
  text,
  type Values,
} from '@berth/kit/config';

export const SETTINGS = {
  LISTEN: {
    doc: 'Address and port of the entry point `websecure`, without TLS',
    default: '127.0.0.1:8000',
    parse: listen,
  },
  CONFIG_URL: {
    doc:
      'URL of the routes, as for Traefik’s HTTP provider: ' +
      'http://127.0.0.1:8080/api/traefik/config',
    shown: 'none: FILE_CONFIG must be set',
    parse: httpUrl,
  },
  FILE_CONFIG: {
    doc: 'Path of a YAML file in the format of Traefik’s file provider; changes are applied',
    shown: 'none',
    parse: text,
  },
  ...LOG_SETTINGS,
} as const;

export type ProxyConfig = Values<typeof SETTINGS> & { logFormat: 'json' | 'pretty' };

/** Reads all settings. Throws SettingsError, which names every wrong variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): ProxyConfig {
  const values = readSettings(SETTINGS, env);
  if (values.CONFIG_URL === undefined && values.FILE_CONFIG === undefined)
    throw new SettingsError([
      'CONFIG_URL: must be set, or FILE_CONFIG; without either, the proxy has no routes',
    ]);
  return { ...values, logFormat: values.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json') };
}
