/** Berth addresses to which this person signed in: `contexts.json` in $XDG_CONFIG_HOME/berth. */
import { join } from 'node:path';
import type { CliConfig } from '../config.ts';
import { usage } from '../problem.ts';
import { readJson, writePrivate } from './files.ts';

export type Context = { url: string; email: string };
export type Contexts = { current: string | null; contexts: Record<string, Context> };

export const configFolder = (config: CliConfig): string =>
  join(config.XDG_CONFIG_HOME ?? join(config.home, '.config'), 'berth');
const fileOf = (config: CliConfig): string => join(configFolder(config), 'contexts.json');

export function readContexts(config: CliConfig): Contexts {
  const stored = readJson(fileOf(config));
  if (stored === undefined) return { current: null, contexts: {} };
  const { current, contexts } = stored as Partial<Contexts>;
  const right =
    typeof contexts === 'object' &&
    contexts !== null &&
    Object.values(contexts).every((c) => typeof c?.url === 'string');
  if (!right)
    throw usage(
      `${fileOf(config)} has an unknown form`,
      `remove it and sign in again: rm ${fileOf(config)}`,
    );
  return { current: current ?? null, contexts };
}

export const writeContexts = (config: CliConfig, contexts: Contexts): void =>
  writePrivate(fileOf(config), `${JSON.stringify(contexts, null, 2)}\n`);

/** Returns the name of a context: the host and port of its address. */
export const nameOf = (url: string): string => new URL(url).host;
export const originOf = (url: string): string => new URL(url).origin;
