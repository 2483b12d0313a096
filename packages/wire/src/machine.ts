/**
 * Labels, architecture, memory and devices: what a machine has, and what a project requires of the
 * machine that runs it (docs/placement.md).
 */
import { type Static, Type } from 'typebox';

/** Agents with this capability pass the devices of a deployment to the engine. */
export const CAN_DEVICES = 'devices';
/**
 * Agents with this capability pass the devices of a run to the engine, and list its container in
 * their registrations.
 */
export const CAN_RUN_DEVICES = 'run-devices';

/** Limits of what one machine reports. Berth ignores the rest. */
export const MAX_LABELS = 32;
export const MAX_DEVICE_KINDS = 16;
export const MAX_DEVICES = 64;
export const MAX_CPUS = 65_536;

/** Letters, digits, `-`, `_`, `.` and `/`; a letter or digit at both ends. */
export const LABEL_KEY = '^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$';
/** Letters, digits, `-`, `_` and `.`; a letter or digit at both ends. */
export const LABEL_VALUE = '^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$';
/** The kind of a CDI device: `vendor.com/class`. */
export const DEVICE_KIND = '^[A-Za-z][A-Za-z0-9._-]{0,62}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}$';
/** The name of a CDI device within its kind. */
export const DEVICE_NAME = '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';

const LABEL_RULE =
  'letters, digits, “-”, “_” and “.”, at most 63 characters, a letter or digit at both ends';
export const LABEL_KEY_RULE = `must have ${LABEL_RULE.replace('“-”', '“-”, “/”')}`;
export const LABEL_VALUE_RULE = `must have ${LABEL_RULE}`;

const matches = (pattern: string): ((text: unknown) => boolean) => {
  const rule = new RegExp(pattern);
  return (text) => typeof text === 'string' && rule.test(text);
};
export const isLabelKey = matches(LABEL_KEY);
export const isLabelValue = matches(LABEL_VALUE);
export const isDeviceKind = matches(DEVICE_KIND);
export const isDeviceName = matches(DEVICE_NAME);

export type Labels = Readonly<Record<string, string>>;
export type Devices = Readonly<Record<string, readonly string[]>>;

/**
 * Fields of a registration that describe the machine. Their schema accepts any value, because a bad
 * value must not break the registration; the control plane ignores it (domain/nodes/machine.ts).
 */
export const MACHINE_REPORT = {
  cpus: Type.Optional(
    Type.Unsafe<number>({ description: 'number of CPUs of the machine; a bad value is ignored' }),
  ),
  memory_bytes: Type.Optional(
    Type.Unsafe<number>({
      description: 'memory of the machine in bytes; a bad value is ignored',
    }),
  ),
  labels: Type.Optional(
    Type.Unsafe<Labels>({
      description: `object of at most ${MAX_LABELS} texts (NODE_LABELS); bad entries are ignored`,
    }),
  ),
  devices: Type.Optional(
    Type.Unsafe<Devices>({
      description:
        'names of the CDI devices by kind, such as {"nvidia.com/gpu": ["0", "1"]}; at most ' +
        `${MAX_DEVICE_KINDS} kinds with ${MAX_DEVICES} names; bad entries are ignored`,
    }),
  ),
};

/** The same fields in the view of a node. */
export const MACHINE_VIEW = {
  cpus: Type.Union([Type.Number(), Type.Null()], {
    description: 'CPUs of the machine; null if the agent does not send it, like `memory_bytes`',
  }),
  memory_bytes: Type.Union([Type.Number(), Type.Null()]),
  labels: Type.Record(Type.String(), Type.String(), {
    description: 'labels of the agent (NODE_LABELS) and of admins, which win',
  }),
  admin_labels: Type.Record(Type.String(), Type.String(), {
    description: 'the labels that an admin set; they are part of `labels`',
  }),
  devices: Type.Record(Type.String(), Type.Array(Type.String()), {
    description: 'names of the devices by kind, as the engine knows them',
  }),
};

/** A merge patch: sets the given labels, removes labels whose value is null, keeps all others. */
export const NodePatch = Type.Object(
  {
    labels: Type.Record(Type.String(), Type.Union([Type.String(), Type.Null()]), {
      maxProperties: 2 * MAX_LABELS,
      description: 'null removes a label that an admin set; the label of the agent then counts',
    }),
  },
  { additionalProperties: false },
);
export type NodePatch = Static<typeof NodePatch>;

/** Maximum number of labels and of kinds of devices that one project requires. */
export const MAX_REQUIRED = 16;
const ARCH = '^[a-z0-9][a-z0-9_/.-]{0,39}$';

export const DeviceCounts = Type.Record(
  Type.String({ pattern: DEVICE_KIND, maxLength: 127 }),
  Type.Integer({ minimum: 1, maximum: MAX_DEVICES }),
  {
    maxProperties: MAX_REQUIRED,
    additionalProperties: false,
    description: 'number of devices by kind; only one container has a device at a time',
  },
);
export type DeviceCounts = Static<typeof DeviceCounts>;

/** Requirements of a project for its node. They take effect with the next deployment. */
export const Requires = Type.Object(
  {
    labels: Type.Optional(
      Type.Record(
        Type.String({ pattern: LABEL_KEY, maxLength: 63 }),
        Type.String({ pattern: LABEL_VALUE, maxLength: 63 }),
        { maxProperties: MAX_REQUIRED, additionalProperties: false },
      ),
    ),
    arch: Type.Optional(
      Type.String({ pattern: ARCH, description: 'as Go names it: amd64, arm64' }),
    ),
    devices: Type.Optional(DeviceCounts),
  },
  { additionalProperties: false, description: 'what a node must have to run the project' },
);
export type Requires = Static<typeof Requires>;

/** Returns one line for each requirement: `label:zone=a`, `arch:amd64`, `device:a.com/b=1`. */
export function requiresLines({ labels = {}, arch, devices = {} }: Requires): string[] {
  return [
    ...Object.entries(labels).map(([key, value]) => `label:${key}=${value}`),
    ...(arch === undefined ? [] : [`arch:${arch}`]),
    ...Object.entries(devices).map(([kind, count]) => `device:${kind}=${count}`),
  ];
}

/**
 * Parses the lines of `requiresLines`; a device without a number means one. Returns `bad` with the
 * first line that has another form. The API checks keys and values.
 */
export function parseRequires(lines: readonly string[]): Requires | { bad: string } {
  const labels: Record<string, string> = {};
  const devices: Record<string, number> = {};
  let arch: string | undefined;
  for (const line of lines.map((one) => one.trim()).filter((one) => one !== '')) {
    const [, what, key = '', value] = /^(label|arch|device):([^=]+)(?:=(.*))?$/.exec(line) ?? [];
    if (what === 'label' && value !== undefined) labels[key] = value;
    else if (what === 'arch' && value === undefined) arch = key;
    else if (what === 'device' && /^\d*$/.test(value ?? '1')) devices[key] = Number(value ?? 1);
    else return { bad: line };
  }
  const requires: Requires = {};
  if (Object.keys(labels).length > 0) requires.labels = labels;
  if (arch !== undefined) requires.arch = arch;
  if (Object.keys(devices).length > 0) requires.devices = devices;
  return requires;
}
