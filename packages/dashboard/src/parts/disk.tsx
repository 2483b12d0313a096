/** Shows the disk of a node as one bar. */
import type { NodeDisk } from '@berth/wire/node';
import { sizeText } from '@berth/wire/size-text';
import { Bar } from '../ui/feedback.tsx';
import { Text } from '../ui/text.tsx';

export function DiskBar({ disk, small = false }: { disk: NodeDisk; small?: boolean }) {
  if (small)
    return (
      <Text size="sm">
        {sizeText(disk.free)} of {sizeText(disk.total)} free
      </Text>
    );
  const knownBytes = (disk.datasets ?? 0) + (disk.images ?? 0) + (disk.build_cache ?? 0);
  return (
    <Bar
      label="Disk"
      total={disk.total}
      format={sizeText}
      parts={[
        { label: 'datasets', value: disk.datasets ?? 0, color: '#1098ad' },
        { label: 'images', value: disk.images ?? 0, color: '#4263eb' },
        { label: 'build cache', value: disk.build_cache ?? 0, color: '#ae3ec9' },
        {
          label: 'other',
          value: disk.other ?? Math.max(0, disk.total - disk.free - knownBytes),
          color: '#868e96',
        },
        { label: 'free', value: disk.free, color: 'var(--free)' },
      ]}
    />
  );
}
