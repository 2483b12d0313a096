/**
 * Provides deploy/traefik/dynamic, which operators copy, to the proxies of the testbed. The files
 * exist only there.
 */
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { repositoryRoot } from './config.ts';

const DYNAMIC = join(repositoryRoot, 'deploy', 'traefik', 'dynamic');
export const FILES = ['middlewares.yml', 'auth-host.yml', 'dashboard.yml', 'registry.yml'] as const;

/** The variables of deploy/traefik/traefik.env. */
export type FileProviderEnv = {
  BASE_DOMAIN: string;
  AUTH_SERVICE_URL: string;
  CONTROL_PLANE_URL: string;
  REGISTRY_URL?: string;
};
type Section = Record<string, Record<string, unknown>>;

/** Copies the files unchanged, for the real Traefik, which is started with FileProviderEnv. */
export async function copyFiles(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const file of FILES) await copyFile(join(DYNAMIC, file), join(folder, file));
}

/** Returns one file as Traefik reads it after it inserted its environment. */
export async function readFileProvider(
  file: (typeof FILES)[number],
  env: FileProviderEnv,
): Promise<{ http: Record<string, Section> }> {
  const template = await readFile(join(DYNAMIC, file), 'utf8');
  const value = (name: string): string => env[name as keyof FileProviderEnv] ?? '';
  const text = template
    .replaceAll(
      /\{\{ if env "([A-Z_]+)" \}\}([\s\S]*?)\{\{ end \}\}/g,
      (_, name: string, part: string) => (value(name) === '' ? '' : part),
    )
    .replaceAll(/\{\{ env "([A-Z_]+)" \}\}/g, (_, name: string) => value(name));
  return parse(text) as { http: Record<string, Section> };
}

/** Writes one file for the built-in proxy, which knows no templates and has no dashboard. */
export async function writeFileConfig(path: string, env: FileProviderEnv): Promise<void> {
  const merged: Record<string, Section> = {};
  for (const file of ['middlewares.yml', 'auth-host.yml'] as const)
    for (const [section, parts] of Object.entries((await readFileProvider(file, env)).http))
      merged[section] = { ...merged[section], ...parts };
  await writeFile(path, JSON.stringify({ http: merged }, null, 2));
}
