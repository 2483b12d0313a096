/** Reads a YAML file of the repository, with merge keys (`<<`). */
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';

export const readYaml = async (path: string): Promise<unknown> =>
  parse(await readFile(path, 'utf8'), { merge: true }) as unknown;
