/** Settings of the control plane. */
import type { SettingInForce } from '@berth/wire/system';
import { type Cell, Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';
import { Code, Text } from '../../ui/text.tsx';

function SettingValue({ setting: { value, source } }: { setting: SettingInForce }) {
  if (source === 'hidden') return <Text tone="quiet">set; hidden, because it may be a secret</Text>;
  if (value === null || value === '')
    return <Text tone="quiet">{source === 'set' ? 'empty' : 'not set'}</Text>;
  return (
    <>
      <Code>{value}</Code>{' '}
      {source === 'default' && (
        <Text tone="quiet" inline>
          default
        </Text>
      )}
    </>
  );
}

const SETTING_COLUMNS: Cell<SettingInForce>[] = [
  { head: 'Setting', rowHead: true, cell: ({ name }) => <Code>{name}</Code> },
  { head: 'Value', cell: (setting) => <SettingValue setting={setting} /> },
  { head: 'What it does', wide: true, cell: ({ doc }) => <Text size="xs">{doc}</Text> },
];

const isDefault = ({ source }: SettingInForce): number => Number(source === 'default');

export const Settings = ({ settings }: { settings: readonly SettingInForce[] }) => (
  <Panel flush title="Settings in force" id="settings">
    <Table
      label="Settings of the control plane"
      // Sort settings without their default value first.
      rows={settings.toSorted((a, b) => isDefault(a) - isDefault(b))}
      id={({ name }) => name}
      cells={SETTING_COLUMNS}
    />
  </Panel>
);
