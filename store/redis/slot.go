package redis

// hashSlots is how many hash slots a cluster has.
const hashSlots = 1 << 14

// slotOf returns the hash slot in which a cluster keeps a key. It is the slot of the part between
// the first { and the first } after it, if that part is not empty, and otherwise the slot of the
// whole key.
func slotOf[T string | []byte](key T) uint16 {
	for i := range len(key) {
		if key[i] != '{' {
			continue
		}
		for j := i + 1; j < len(key); j++ {
			if key[j] == '}' && j > i+1 {
				return crc16(key[i+1:j]) % hashSlots
			}
			if key[j] == '}' {
				break
			}
		}
		break
	}
	return crc16(key) % hashSlots
}

// tagOf returns a text of four letters from "@" to "O" whose slot is the given one. So a key that
// contains "{" + tagOf(slot) + "}" is in that slot. The text is the same in every process.
//
// Four letters carry four bits each, and a CRC is linear: if one bit of the letters is flipped, a
// fixed pattern of the slot's bits is flipped. tagBits has, for each bit of a slot, the bits of the
// letters that flip only that bit.
func tagOf(slot uint16) string {
	wanted := slot ^ tagBase
	bits := uint16(0)
	for i, flip := range tagBits {
		if wanted>>i&1 == 1 {
			bits ^= flip
		}
	}
	return string([]byte{'@' | byte(bits>>12), '@' | byte(bits>>8&15), '@' | byte(bits>>4&15), '@' | byte(bits&15)})
}

const tagBase = 13881 // the slot of "@@@@"

var tagBits = [14]uint16{
	0x1afa, 0x06ed, 0x277b, 0x110c, 0x2a91, 0x39c0, 0x1f63,
	0x277f, 0x1104, 0x2208, 0x1bea, 0x04cd, 0x233b, 0x198c,
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, nothing reflected, from zero.
func crc16[T string | []byte](s T) uint16 {
	crc := uint16(0)
	for i := range len(s) {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^s[i]]
	}
	return crc
}

var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}()
