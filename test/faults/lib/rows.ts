/** All rows, in the order of docs/faults.md. */
import type { Row } from './row.ts';
import { BUILDER_ROWS } from './rows/builder.ts';
import { CONTROL_PLANE_ROWS } from './rows/control-plane.ts';
import { DATA_ROWS } from './rows/data.ts';
import { DISK_ROWS } from './rows/disk.ts';
import { ENGINE_ROWS } from './rows/engine.ts';
import { NODE_ROWS } from './rows/node.ts';
import { PROXY_ROWS } from './rows/proxy.ts';
import { PUSH_ROWS } from './rows/pushes.ts';
import { REGISTRY_ROWS } from './rows/registry.ts';
import { RUN_ROWS } from './rows/runs.ts';
import { SECRET_ROWS } from './rows/secrets.ts';
import { VOLUME_ROWS } from './rows/volumes.ts';

export const ROWS: readonly Row[] = [
  ...BUILDER_ROWS,
  ...NODE_ROWS,
  ...ENGINE_ROWS,
  ...REGISTRY_ROWS,
  ...DISK_ROWS,
  ...CONTROL_PLANE_ROWS,
  ...PROXY_ROWS,
  ...DATA_ROWS,
  ...PUSH_ROWS,
  ...SECRET_ROWS,
  ...VOLUME_ROWS,
  ...RUN_ROWS,
];
