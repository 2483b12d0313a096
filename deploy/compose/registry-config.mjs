// The registry reads its configuration from a volume, because an agent makes it read-only there while it cleans (docs/clean-up.md). The
// file of the operator is copied when it changed since the last copy, but never while the agent's change is in the volume: a registry that
// becomes writable during its garbage collection loses layers.
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** The agent writes this comment with its change (packages/agent/src/registry/config-file.ts). */
const READ_ONLY = '# Berth makes the registry read-only while it cleans it';

/** @returns {string | null} what was done, for the log */
export function copyRegistryConfig(from, folder) {
  const text = readFileSync(from, 'utf8');
  const [file, last] = [join(folder, 'registry.yml'), join(folder, 'copied.yml')];
  if (read(file) !== null && read(last) === text) return null;
  for (const path of [file, last]) writeFileSync(`${path}.new`, text, { mode: 0o600 });
  // Read immediately before the change, because an agent may begin at any moment.
  const present = read(file);
  if (present?.includes(READ_ONLY)) {
    for (const path of [file, last]) rmSync(`${path}.new`);
    return (
      'a clean-up of the registry runs: compose/registry.yml has changed and was not copied. When the clean-up has ended, repeat: ' +
      'docker compose up -d --wait && docker compose restart registry'
    );
  }
  const isNew = present === null;
  // In this order, so that a copy that was interrupted is repeated.
  for (const path of [file, last]) renameSync(`${path}.new`, path);
  return isNew
    ? 'created the configuration of the registry'
    : 'compose/registry.yml has changed. Run: docker compose restart registry';
}

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT') return null;
    throw error;
  }
}
