<?php echo 'script';
