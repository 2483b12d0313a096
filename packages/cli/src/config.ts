/** Settings of the command line. docs/settings.md is generated from this table. */
import { absolutePath, httpUrl, readSettings, text, type Values } from '@berth/kit/config';

export const SETTINGS = {
  BERTH_URL: {
    doc:
      'Address of Berth, for CI: the command line then ignores its contexts and `.berth.json` ' +
      'names no address',
    parse: httpUrl,
  },
  BERTH_TOKEN: {
    doc: 'Personal API token or device token, for CI. It is sent only to `BERTH_URL`',
    parse: text,
  },
  XDG_CONFIG_HOME: {
    doc: 'Folder of the contexts: `berth/contexts.json` below it',
    shown: '`~/.config`',
    parse: absolutePath,
  },
  XDG_STATE_HOME: {
    doc: 'Folder of the tokens of people: `berth/` below it',
    shown: '`~/.local/state`',
    parse: absolutePath,
  },
  NO_COLOR: { doc: 'Any value: no colours, and one line for each change', parse: text },
  BROWSER: {
    doc: 'Program that `login` and `open` start with an address',
    shown: 'the opener of the system (`open` or `xdg-open`)',
    parse: text,
  },
} as const;

export type CliConfig = Values<typeof SETTINGS> & {
  home: string;
  /** False with NO_COLOR or TERM=dumb: then the output has no colours and no animation. */
  canDraw: boolean;
  /** True with TERM=dumb: the cursor cannot move, so the command cannot ask questions. */
  isDumb: boolean;
  /** True if this machine has a desktop session, so that a browser can open. */
  hasDisplay: boolean;
  /** Environment variables for git and the browser. */
  childEnv: NodeJS.ProcessEnv;
};

/** Reads the settings. Throws SettingsError that lists every problem. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): CliConfig {
  return {
    ...readSettings(SETTINGS, env),
    home: env['HOME'] ?? '/',
    canDraw: (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb',
    isDumb: env['TERM'] === 'dumb',
    hasDisplay:
      process.platform !== 'linux' ||
      (env['DISPLAY'] ?? env['WAYLAND_DISPLAY'] ?? '') !== '' ||
      (env['BROWSER'] ?? '') !== '',
    childEnv: Object.fromEntries(
      Object.entries(env).filter(([name]) => !name.startsWith('BERTH_')),
    ),
  };
}
