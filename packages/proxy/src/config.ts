/** Settings of the development proxy (INTERFACES.md "Settings"); docs/settings.md is held equal to this table. */
import { httpUrl, LOG_SETTINGS, listen, readSettings, SettingsError, text, type Values } from '@berth/kit/config';

export const SETTINGS = {
  LISTEN: { doc: 'Address; stands for the entry point `websecure`, without TLS', default: '127.0.0.1:8000', parse: listen },
  CONFIG_URL: {
    doc: 'Where the routes come from, as Traefik’s HTTP provider: http://127.0.0.1:8080/api/traefik/config',
    shown: 'none; then FILE_CONFIG must be set',
    parse: httpUrl,
  },
  FILE_CONFIG: { doc: 'A file as Traefik’s file provider reads it (YAML), watched', shown: 'none', parse: text },
  ...LOG_SETTINGS,
} as const;

export type ProxyConfig = Values<typeof SETTINGS> & { logFormat: 'json' | 'pretty' };

/** Throws SettingsError with every problem. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): ProxyConfig {
  const values = readSettings(SETTINGS, env);
  if (values.CONFIG_URL === undefined && values.FILE_CONFIG === undefined)
    throw new SettingsError(['CONFIG_URL: must be set, or FILE_CONFIG (without either there is nothing to route)']);
  return { ...values, logFormat: values.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json') };
}
