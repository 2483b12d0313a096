/** Reads a YAML file of the repository. */
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';

export const readYaml = async (path: string): Promise<unknown> => parse(await readFile(path, 'utf8')) as unknown;
