/**
 * Writes the types of the Docker Engine API that the agent uses:
 * `node scripts/engine-api.ts v1.41.yaml`. The document is docs/api/v1.41.yaml of
 * https://github.com/moby/moby/tree/v28.2.2.
 */
import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { engineApiTypes } from '@berth/testbed/engine-api-types';

const TARGET = 'packages/agent/src/engine/engine-api.ts';

const [source] = process.argv.slice(2);
if (source === undefined) throw new Error('give the path of the OpenAPI document');
await writeFile(TARGET, await engineApiTypes(await readFile(source, 'utf8')));
execFileSync('npx', ['biome', 'format', '--write', TARGET], { stdio: 'inherit' });
