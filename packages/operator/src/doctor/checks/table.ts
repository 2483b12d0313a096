/** All checks, in the order of the report. */
import type { Check } from '../check.ts';
import { BACKUPS } from './backups.ts';
import { CERTIFICATES } from './certificates.ts';
import { CLOCK } from './clock.ts';
import { ENGINE } from './engine.ts';
import { NAMES } from './names.ts';
import { PORTS } from './ports.ts';
import { READY } from './ready.ts';
import { REGISTRY } from './registry.ts';
import { SECRETS } from './secrets.ts';
import { SHARE } from './share.ts';
import { SPACE } from './space.ts';
import { UNITS } from './units.ts';
import { VERSIONS } from './versions.ts';

export const CHECKS: readonly Check[] = [
  UNITS,
  READY,
  PORTS,
  NAMES,
  CERTIFICATES,
  ENGINE,
  REGISTRY,
  SHARE,
  SPACE,
  CLOCK,
  SECRETS,
  BACKUPS,
  VERSIONS,
];
