/** Chooses the address of Berth for a command. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Io } from '../io.ts';
import { signInNeeded, usage } from '../problem.ts';
import { originOf, readContexts } from './contexts.ts';
import { readJson } from './files.ts';
import { hasTokens, tokenStore } from './tokens.ts';

export const LINK_FILE = '.berth.json';
export type Link = { url: string; project: string; path: string };

/** Reads `.berth.json` of the folder or of the nearest parent that has one. */
export function readLink(cwd: string): Link | null {
  for (let folder = cwd; ; folder = dirname(folder)) {
    const path = join(folder, LINK_FILE);
    if (existsSync(path)) {
      const { url, project } = (readJson(path) ?? {}) as Partial<Link>;
      if (
        typeof url !== 'string' ||
        !URL.canParse(url) ||
        typeof project !== 'string' ||
        project === ''
      )
        throw usage(
          `${path} must have the form {"url": "https://…", "project": "…"}`,
          'berth link PROJECT',
        );
      return { url: originOf(url), project, path };
    }
    if (folder === dirname(folder)) return null;
  }
}

/** `token` is set only in CI. */
export type Chosen = { url: string; token: string | undefined };

/** Returns the first of: the option `--context`, BERTH_URL, `.berth.json`, the current context. */
export function chooseAddress(io: Io, contextName: string | undefined): Chosen {
  const { BERTH_URL, BERTH_TOKEN } = io.config;
  if (contextName !== undefined) {
    const context = readContexts(io.config).contexts[contextName];
    if (context === undefined)
      throw usage(`there is no context “${contextName}”`, 'berth context list');
    return { url: context.url, token: undefined };
  }
  if (BERTH_URL !== undefined) return { url: originOf(BERTH_URL), token: BERTH_TOKEN };
  // A file in the repository must not decide which server receives the CI token.
  if (BERTH_TOKEN !== undefined)
    throw usage(
      'BERTH_TOKEN is set, but BERTH_URL is not',
      'set BERTH_URL to the address of Berth',
    );

  const link = readLink(io.cwd);
  if (link !== null) {
    if (tokenStore(io.config, link.url).read() === null)
      throw signInNeeded(
        `${link.path} names ${link.url}, and you are not signed in there`,
        `if you trust this address: berth login ${link.url}`,
      );
    return { url: link.url, token: undefined };
  }
  const { current, contexts } = readContexts(io.config);
  const context = current === null ? undefined : contexts[current];
  if (context !== undefined) return { url: context.url, token: undefined };
  throw signInNeeded(
    hasTokens(io.config) ? 'no context is selected' : 'you are not signed in',
    hasTokens(io.config) ? 'berth context use NAME' : 'berth login https://your-berth.example.com',
  );
}
