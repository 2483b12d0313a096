/**
 * Reads what an agent reports about its machine, and checks the labels of admins. A bad value of a
 * report is ignored, so that it never breaks a registration. Pure.
 */
import {
  type Devices,
  isDeviceKind,
  isDeviceName,
  isLabelKey,
  isLabelValue,
  LABEL_KEY_RULE,
  LABEL_VALUE_RULE,
  type Labels,
  MAX_CPUS,
  MAX_DEVICE_KINDS,
  MAX_DEVICES,
  MAX_LABELS,
  type NodePatch,
} from '@berth/wire/machine';
import type { NodeRegister } from '@berth/wire/node';
import type { FieldProblem } from '../platform/errors.ts';
import type { NodeRecord } from '../platform/records.ts';

export type Machine = {
  cpus: number | null;
  memory_bytes: number | null;
  labels: Labels;
  devices: Devices;
};

/** Returns the valid parts of the report. */
export const machineOf = (input: NodeRegister): Machine => ({
  cpus: numberOf(input.cpus, MAX_CPUS),
  memory_bytes: wholeOf(numberOf(input.memory_bytes, Number.MAX_SAFE_INTEGER)),
  labels: labelsOf(input.labels),
  devices: devicesOf(input.devices),
});

const numberOf = (value: unknown, max: number): number | null =>
  typeof value === 'number' && value > 0 && value <= max ? value : null;
const wholeOf = (value: number | null): number | null =>
  value === null ? null : Math.round(value);

const entriesOf = (value: unknown): [string, unknown][] =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [];

const labelsOf = (value: unknown): Labels =>
  Object.fromEntries(
    entriesOf(value)
      .filter((entry): entry is [string, string] => isLabelKey(entry[0]) && isLabelValue(entry[1]))
      .slice(0, MAX_LABELS),
  );

const devicesOf = (value: unknown): Devices =>
  Object.fromEntries(
    entriesOf(value)
      .map(([kind, names]) => [kind, namesOf(names)] as const)
      .filter(([kind, names]) => isDeviceKind(kind) && names.length > 0)
      .slice(0, MAX_DEVICE_KINDS),
  );

const namesOf = (names: unknown): string[] =>
  Array.isArray(names)
    ? [...new Set(names.filter((name): name is string => isDeviceName(name)))].slice(0, MAX_DEVICES)
    : [];

/** Returns the value of a label, or null. A label of an admin wins. */
export const labelOf = (
  { labels, admin_labels }: Pick<NodeRecord, 'labels' | 'admin_labels'>,
  key: string,
): string | null => admin_labels[key] ?? labels[key] ?? null;

export const labelsOfNode = ({
  labels,
  admin_labels,
}: Pick<NodeRecord, 'labels' | 'admin_labels'>): Labels => ({ ...labels, ...admin_labels });

/** Returns the labels of admins after the patch. */
export function patchedLabels(present: Labels, patch: NodePatch['labels']): Labels {
  const kept = Object.entries({ ...present, ...patch }).filter(
    (entry): entry is [string, string] => entry[1] !== null,
  );
  return Object.fromEntries(kept.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Checks a patch; a label that it removes may have any key. */
export function labelProblems(present: Labels, patch: NodePatch['labels']): FieldProblem[] {
  const problems = Object.entries(patch).flatMap(([key, value]) => {
    if (value === null) return [];
    const field = `labels.${key.slice(0, 63)}`;
    return [
      ...(isLabelKey(key)
        ? []
        : [{ field, rule: 'label_key', message: `the name ${LABEL_KEY_RULE}` }]),
      ...(isLabelValue(value)
        ? []
        : [{ field, rule: 'label_value', message: `the value ${LABEL_VALUE_RULE}` }]),
    ];
  });
  if (Object.keys(patchedLabels(present, patch)).length <= MAX_LABELS) return problems;
  const message = `a node has at most ${MAX_LABELS} labels of admins`;
  return [...problems, { field: 'labels', rule: 'max_properties', message }];
}
